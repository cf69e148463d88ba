"""The lab: what this project needs to convince itself. The product, ``litebert``, never imports it.

Studies, benchmarks beside other libraries, comparisons of strategies, the leak check, long model cards and the making
of the shipped models. scikit-learn, scipy and transformers may be used here (the extra ``lab``).
"""
