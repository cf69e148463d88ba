"""A first hour with litebert, to paste cell by cell: load, search, fine-tune, look at mistakes, drop layers, save.

Run from the root of the repository; on two CPU cores it takes about six minutes.
"""

# %% Load the English model that ships with litebert
import pandas as pd

import litebert

model = litebert.load("litebert-en")
print(model.fill("She [MASK] to the store.", top=3))

# %% Search among texts with the model for sentence vectors
searcher = litebert.load("litebert-en-embed")
tickets = pd.read_csv("examples/tickets/tickets.csv", keep_default_na=False)
tickets = tickets[tickets["language"] == "en"].reset_index(drop=True)
vectors = searcher.encode(tickets["body"][:200], normalize=True)
query = searcher.encode("my parcel has not arrived", normalize=True)
for place in (vectors @ query).argsort()[::-1][:3]:
    print(f"{vectors[place] @ query:.2f}  {tickets['queue'][place]}: {tickets['body'][place]}")

# %% Fine-tune on a DataFrame; part of it is held out to choose the best model
run = litebert.finetune("litebert-en", tickets, text="subject+body", label="queue", out="quickstart/tuned", budget="4m")
print(run.scores)

# %% Predict, and look at mistakes
print(run.model.predict("where is the machine I ordered last month?"))
report = run.model.evaluate(tickets[:150])
print(report.scores)
for row in report.hardest[:3]:
    print(row)

# %% Half the layers: half the time, the same file size, since all layers share one block
small = run.model.drop(strategy="top", count=6)
print(small.evaluate(tickets[:150]).scores)

# %% Save a folder that transformers loads, too
small.save("quickstart/small")
