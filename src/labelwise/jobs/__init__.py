"""Ask one question about very many images: blocks of files become Parquet files, in local processes or on a cluster."""
