"""The generated reference pages: each module writes one, from the classes and constants of the product."""

NOTE = "<!-- Written by `python -m docs.generate`. Do not edit: change the code and run it again. -->"
