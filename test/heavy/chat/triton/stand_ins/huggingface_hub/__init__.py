"""In the place of the package: the weights of a LoRA are an empty folder, or those that NEREID_TEST_CHAT_LORA names."""
import os
import shutil


def snapshot_download(repo_id, local_dir):
    os.makedirs(local_dir, exist_ok=True)
    weights = os.environ.get("NEREID_TEST_CHAT_LORA")
    if weights:
        shutil.copytree(weights, local_dir, dirs_exist_ok=True)
    return local_dir
