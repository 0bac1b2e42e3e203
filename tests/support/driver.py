"""A driver of its own: python driver.py SEED FOLDER MASTER [jvm]; with `jvm` its Java process is killed under way."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fault_cases import FaultCase

from penstock.spark.pipeline import Pipeline
from penstock.spark.session import local_session


def main(seed: str, folder: str, master: str, *faults: str) -> None:
    story = FaultCase(int(seed), Path(folder))
    spark = local_session(master, {"spark.driver.memory": "1g"})
    story.run_to_end(spark, story.draw_faulty_pipeline("jvm") if faults else Pipeline)
    print("executors", spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
    spark.stop()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # Java may be gone, and with it whatever would end this process in order
        print(error, file=sys.stderr)
        os._exit(1)
