"""A DataFrame of a user's session as one of the session of a frame.

Spark takes the settings of a streaming query from the session of its DataFrame, but those of a file source from the
session that read it. The source logs its files in every micro-batch, and by Spark's default that starts a dozen
processes on a local disk. So file sources move to the session of the frame too, which has another file manager. No
public method does this: the plan is built again with the same nodes, and only the session of the sources differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.environment import is_connect
from penstock.spark.frames.session import get_setting

_SOURCE_NODE, _FILE_SOURCE = "StreamingRelation", "FileSource["


def move_frame(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """The same DataFrame as one of another session of the application."""
    if frame.sparkSession is spark:
        return frame
    if frame.isStreaming and not is_connect(spark):
        jvm: Any = spark._jvm
        plan = _move_sources(frame._jdf.queryExecution().analyzed(), spark)
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
    name = f"penstock_{uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        database = get_setting(spark, "spark.sql.globalTempDatabase")
        return spark.table(f"{database}.{name}")
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(name)


def _move_sources(plan: Any, spark: SparkSession) -> Any:
    """A logical plan whose file sources belong to a session."""
    if plan.nodeName() == _SOURCE_NODE:
        source = plan.dataSource()
        if not source.sourceInfo().name().startswith(_FILE_SOURCE):
            return plan
        return _copy_node(spark, plan, {0: _copy_node(spark, source, {0: spark._jsparkSession})})
    children = plan.children()
    if children.isEmpty():
        return plan
    jvm: Any = spark._jvm
    moved = [_move_sources(children.apply(place), spark) for place in range(children.size())]
    return plan.withNewChildren(jvm.org.apache.spark.api.python.PythonUtils.toSeq(moved))


def _copy_node(spark: SparkSession, node: Any, changes: Mapping[int, Any]) -> Any:
    """A copy of a case class of Scala with some of its values changed, by their places."""
    gateway: Any = spark.sparkContext._gateway
    size = node.productArity()
    values = gateway.new_array(gateway.jvm.java.lang.Object, size)
    for place in range(size):
        values[place] = changes[place] if place in changes else node.productElement(place)
    return node.getClass().getConstructors()[0].newInstance(values)
