/** What of the Python backend lies on disk: our modules, which runners import, and our backends that are written in Python. */

import { fileURLToPath } from 'node:url'

/** Absolute path of the directory with `triton_python_backend_utils.py`. The same two levels below the root in `src` and in `dist`. */
export function pythonRuntime(): string {
  return fileURLToPath(new URL('../../crates/backend-python/runtime', import.meta.url))
}
