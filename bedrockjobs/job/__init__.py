"""What a job is: its row, its states and what moves it between them, and which takes it is open to. Pure."""
