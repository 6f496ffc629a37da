#!/bin/sh
# Starts Triton as it runs today. It ends after 10 minutes, if nothing ends it before.
set -eu
site=$(echo "$PWD"/triton/python/lib/python3.*/site-packages)
export PATH="$PWD/triton/python/bin:$PATH" PYTHONPATH="$site"
libraries=$(python -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
export LD_LIBRARY_PATH="$libraries:$site/nvidia_pytriton.libs"
exec timeout 600 triton/bin/tritonserver --model-repository=models --backend-directory=triton/backends --http-address=127.0.0.1 --http-port=25000 --allow-grpc=false --allow-metrics=false --http-thread-count=8
