"""What checkers must find in a user's module: each line that ends with `wrong` is one, and no other."""

from bedrockjobs import Client, CreateJob, GetJob
from bedrockjobs import Nowhere  # wrong

client = Client("localhost:8888")
CreateJob(name=5)  # wrong
CreateJob()  # wrong
CreateJob(name="a", retires=3)  # wrong
CreateJob(name="a", catchup="maybe")  # wrong
print(client.call(GetJob(name="a")).nmae)  # wrong
print(client.call(GetJob(name="a")).run_id + 1)  # wrong
client.cal(GetJob(name="a"))  # wrong
print(client.call(GetJob(name="a")).name.upper())
