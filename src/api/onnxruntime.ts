/** Finds the ONNX Runtime library that npm brought along. */

import { existsSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

/** Absolute path of the library for this platform; null when the package is not installed or has none. */
export function findOnnxRuntime(): string | null {
  let root: string
  try {
    root = dirname(createRequire(import.meta.url).resolve('onnxruntime-node/package.json'))
  } catch {
    return null
  }
  const bin = join(root, 'bin')
  if (!existsSync(bin)) return null
  for (const api of readdirSync(bin).filter((name) => name.startsWith('napi-v'))) {
    const directory = join(bin, api, process.platform, process.arch)
    if (!existsSync(directory)) continue
    const library = readdirSync(directory).find((name) => /^libonnxruntime(\.so\.\d+|\.[\d.]+\.dylib|\.dylib)$/.test(name))
    if (library !== undefined) return join(directory, library)
  }
  return null
}
