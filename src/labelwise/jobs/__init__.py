"""One question about very many images: blocks of files in, a Parquet file a block out, in processes here or on a cluster."""
