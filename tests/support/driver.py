"""A driver in a separate process: python driver.py SEED FOLDER MASTER [jvm|commit|executors].

`jvm` kills its Java process in a task, `commit` kills both of its processes in a commit, `executors` kills executors of
a local cluster between micro-batches.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fault_cases import FaultCase, lose_executors

from penstock.spark.pipeline import Pipeline
from penstock.spark.session import local_session


def main(seed: str, folder: str, master: str, *faults: str) -> None:
    fault_case = FaultCase(int(seed), Path(folder))
    spark = local_session(master, {"spark.driver.memory": "1g"})
    if "commit" in faults:
        java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        fault_case.run_to_end(spark, flaky=fault_case.draw_ending_sink(java))
    elif "executors" in faults:
        print("killed", *lose_executors(spark, fault_case))
    else:
        fault_case.run_to_end(spark, fault_case.draw_faulty_pipeline("jvm") if faults else Pipeline)
    print("executors", spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
    spark.stop()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # without its Java process Spark may not let this process end
        print(error, file=sys.stderr)
        os._exit(1)
