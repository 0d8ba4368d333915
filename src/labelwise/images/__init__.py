"""Images and their labels: sources, decoding, splits.

    word or path --catalogue.load--> a source --> Rows --sources/build--> Dataset = Labels + splits of Images and targets

- ``images``: the interface ``Images``, with arrays, features and joined images. ``stored``: image files, decoded on demand.
  ``as_images``: converts paths, arrays and others to ``Images``. ``view``: how images are resized and cropped for a model.
- ``dataset``: images with labels, by split.
- ``sources/``: folders, tables (``csv_files``, ``parquet_files``, ``columns``), ``packs`` and ``arrays``, ``shards`` (``tar_files`` and
  ``parquet``; ``paths`` resolves names). Each makes ``Rows``; ``build`` drops unreadable files, divides the others and checks
  them.
- ``formats/``: annotations of other tools. Each module yields records (file, box, labels, split, event); ``find`` recognises them.
- ``decode/``: decodes one file to bytes. ``headers`` estimates the cost; ``workers`` decode large images in isolated processes.
- ``split/``: rows of splits (``make``, ``divide``), groups (``grouping``, ``lookalikes``), ``leaks``, ``files``.
- ``describe/``: label descriptions. ``sets/``: embedded data. ``overview`` and ``sheets``: the data check.
"""
