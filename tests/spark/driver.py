"""A driver of its own, whose Java process is killed under way: python driver.py SEED FOLDER."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from adventures import Story
from sparkkit import drained

from penstock.spark.session import local_session


def main() -> None:
    story = Story(int(sys.argv[1]), Path(sys.argv[2]))
    spark = local_session("local[2,4]", {"spark.driver.memory": "1g"})
    drained(story.started(spark, story.faulty("jvm")), finish=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # Java is gone, and with it whatever would end this process in order
        print(error, file=sys.stderr)
        os._exit(1)
