#!/usr/bin/env python3
"""Counts, once a second, until it is told to stop: a service in Python, fenced in DynamoDB.

It reads the counter, thinks, and writes the next number: a read-modify-write that two
copies at once would spoil. Each write carries the fence, and DynamoDB refuses it once a
newer run has written.
"""
import os
import signal
import sys
import threading

import boto3

TABLE = "example-counters"
KEY = {"pk": "visits"}
STALE = 79  # the status of solojob for a lost lease

# boto3 reads AWS_DEFAULT_REGION alone, and before 1.28 no variable for an endpoint.
db = boto3.resource(
    "dynamodb",
    region_name=os.environ.get("AWS_REGION"),
    endpoint_url=os.environ.get("AWS_ENDPOINT_URL_DYNAMODB"),
)


def create_table():
    try:
        db.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        ).wait_until_exists()
    except db.meta.client.exceptions.ResourceInUseException:
        pass  # it is there already


def count(fence):
    """Add one. Raises ConditionalCheckFailedException if a newer run has written.

    boto3 sends a write again if its reply was lost. That is harmless here: the same
    number is set, not added.
    """
    table = db.Table(TABLE)
    item = table.get_item(Key=KEY, ConsistentRead=True).get("Item", {})
    value = int(item.get("value", 0)) + 1
    table.update_item(
        Key=KEY,
        UpdateExpression="SET #value = :value, #fence = :fence",
        ConditionExpression="attribute_not_exists(#fence) OR #fence <= :fence",
        ExpressionAttributeNames={"#value": "value", "#fence": "fence"},
        ExpressionAttributeValues={":value": value, ":fence": fence},
    )
    return value


def main():
    if sys.argv[1:] == ["--create-table"]:
        create_table()
        return
    if "FENCE" not in os.environ:
        sys.exit("FENCE is not set: start this job with solojob, or try it by hand with FENCE=1")
    fence = int(os.environ["FENCE"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.is_set():
        try:
            print(f"fence {fence}: {count(fence)}", flush=True)
        except db.meta.client.exceptions.ConditionalCheckFailedException:
            print(f"fence {fence} is stale: a newer run has written", file=sys.stderr)
            sys.exit(STALE)
        stop.wait(1)


if __name__ == "__main__":
    main()
