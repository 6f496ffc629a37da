"""In the place of the package: the weights of a LoRA are an empty folder."""
import os


def snapshot_download(repo_id, local_dir):
    os.makedirs(local_dir, exist_ok=True)
    return local_dir
