/** Finds the ONNX Runtime library that npm installed. */

import { existsSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { findPlatformPackage } from './locate.js'

/** Absolute path of the library: from the platform package, else from `onnxruntime-node` (in a clone); else null. */
export function findOnnxRuntime(): string | null {
  const installed = findPlatformPackage()
  return ('missing' in installed ? null : libraryIn(installed.directory)) ?? ofOnnxRuntimeNode()
}

function libraryIn(directory: string): string | null {
  const name = readdirSync(directory).find((one) => /^libonnxruntime(\.so\.\d+|\.[\d.]+\.dylib|\.dylib)$/.test(one))
  return name === undefined ? null : join(directory, name)
}

function ofOnnxRuntimeNode(): string | null {
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
    const library = existsSync(directory) ? libraryIn(directory) : null
    if (library !== null) return library
  }
  return null
}
