"""A module with errors that type checkers must find: exactly the lines that end with `wrong`."""

from bedrockjobs import Client, CreateJob, GetJob
from bedrockjobs import Nowhere  # wrong
from bedrock_worker import Workflow, chain, chord, cron, group, job
from users_jobs import Size, area, double, first, look, resize, total

client = Client("localhost:8888")
CreateJob(name=5)  # wrong
CreateJob()  # wrong
CreateJob(name="a", retires=3)  # wrong
CreateJob(name="a", catchup="maybe")  # wrong
CreateJob(name="a", first_run=5)  # wrong
print(client.call(GetJob(name="a")).nmae)  # wrong
print(client.call(GetJob(name="a")).run_id + 1)  # wrong
client.cal(GetJob(name="a"))  # wrong
print(client.call(GetJob(name="a")).name.upper())

resize.enqueue(widht=800)  # wrong
resize.enqueue("800")  # wrong
resize.enqueue(width=800).wait().height.upper()  # wrong
resize.using(retires=3).enqueue(width=800)  # wrong
resize.schedule("0 9 * * *")  # wrong
double.enqueue(number=3).wait() + 1  # wrong
look.enqueue(who="Ann").wait()["id"]
resize.enqueue(width=800).status().wdith()  # wrong
double.checked("3")  # wrong
job("a", retry_on=("OSError",))  # wrong
job("a", backoff=lambda attempt: attempt)  # wrong
job("a", retry_on=OSError, give_up_on=(ValueError, KeyError), backoff=["1m", 5])
resize.s("800")  # wrong
resize.s(widht=800)  # wrong
area.s(factor="x")  # wrong
chain(first.s(1), area.s())  # wrong
chain(resize.s(1), area.s()).start().wait().upper()  # wrong
chord([first.s(1), first.s(2)], area.s())  # wrong
chord([area.s(Size(1, 2))], total.s()).start().wait().upper()  # wrong
group(area.s(Size(1, 2))).start().wait().upper()  # wrong
area.s().start()  # wrong
workflow = Workflow("a")
workflow.add(area.s())  # wrong
workflow.add(area.s(workflow.add(first.s(1)).result))  # wrong
workflow.add(area.s(workflow.add(resize.s(1)).result), on_failure="stop")  # wrong
workflow.start().retry().upper()  # wrong


@cron("0 3 * * *", retires=3)  # wrong
def nightly() -> None: ...
