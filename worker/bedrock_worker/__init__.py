"""bedrock-worker: pulls jobs from a bedrockjobs server and runs a command for each."""
