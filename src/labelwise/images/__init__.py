"""Images and their labels: where they come from, how they are read, how they are divided.

    word or path --catalogue.load--> a source --> Rows --sources/build--> Dataset = Labels + splits of Images and targets

- ``images``: the contract ``Images``; arrays, features and joined parts are some. ``stored``: those in files, which are decoded.
  ``as_images``: whatever a person holds, as ``Images``. ``view``: how an image is brought to a model.
- ``dataset``: images with labels, by split.
- ``sources/``: folders, tables (``csv_files``, ``parquet_files``, ``columns``), ``packs`` and ``arrays``, ``shards`` (``tar_files`` and
  ``parquet``; ``paths`` says what a word names). Each makes ``Rows``; ``build`` leaves out files that cannot be read, divides the others and checks them.
- ``decode/``: one file to bytes. ``headers`` says what it will cost, ``workers`` decode what is large where it can do no harm.
- ``split/``: which rows go where (``make``, ``divide``), what stays together (``grouping``, ``lookalikes``), ``leaks``, ``files``.
- ``describe/``: what is known about labels. ``sets/``: embedded data. ``overview`` and ``sheets``: the data check.
"""
