#!/bin/sh
# Puts the tritonserver of the package nvidia-pytriton into the directory `triton`, with the Python backend beside it.
set -eu
python3 -m venv triton/python
# With numpy 2, the Python backend of this Triton reads sizes wrongly.
triton/python/bin/pip install --quiet nvidia-pytriton==0.7.0 'numpy<2'
package=$(echo "$PWD"/triton/python/lib/python3.*/site-packages/pytriton/tritonserver)
version=$(triton/python/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cp -r "$package/backends" triton/
# A link, because the libraries of the server are beside its file.
ln -s "$package/bin" triton/bin
cp "$package/python_backend_stubs/$version/triton_python_backend_stub" triton/backends/python/
chmod +x triton/bin/tritonserver triton/backends/python/triton_python_backend_stub
