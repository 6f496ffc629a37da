// Real directories and files; a graph has the form that the core returns.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll } from 'vitest'
import {
  completeConfig,
  finishConfig,
  NO_GPUS,
  readConfig,
  type ConfigFlags,
  type LoadedConfig,
  type Log,
  type ModelConfig,
  type ModelIo,
} from '../../src/config/index.js'
import type { TensorIo } from '../../src/native/contract.js'
import { statusText } from '../../src/native/errors.js'

const root = mkdtempSync(join(tmpdir(), 'nereid-config-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
let directories = 0

/** Writes a model directory and returns its path. Keys ending in `/` are directories. */
export function directory(name: string, files: Record<string, string>): string {
  const model = join(root, String(directories++), name)
  mkdirSync(model, { recursive: true })
  for (const [path, content] of Object.entries(files)) {
    const full = join(model, path)
    mkdirSync(path.endsWith('/') ? full : dirname(full), { recursive: true })
    if (!path.endsWith('/')) writeFileSync(full, content)
  }
  return model
}

/** The configuration after polling. */
export function pollConfig(
  modelDirectory: string,
  name: string,
  flags: ConfigFlags,
  overrideJson: string | null = null,
): LoadedConfig {
  return completeConfig(readConfig(modelDirectory, flags, overrideJson), modelDirectory, name, flags)
}

/** The configuration after polling a directory with this `config.pbtxt` (or none) and these files in version 1. */
export function poll(
  name: string,
  config: string | null,
  files: string[] = ['model.onnx'],
  autoComplete = true,
): ModelConfig {
  const all: Record<string, string> = { '1/': '' }
  for (const file of files) all[`1/${file}`] = ''
  if (config !== null) all['config.pbtxt'] = config
  return pollConfig(directory(name, all), name, { autoComplete, configName: null }).config
}

export function finish(
  config: ModelConfig,
  graph: ModelIo | null,
  autoComplete = true,
  settings: { key: string; value: string }[] = [],
  log?: Log,
): ModelConfig {
  return finishConfig(config, graph, { flags: { autoComplete, configName: null }, settings, devices: NO_GPUS }, log)
}

export function tensor(name: string, datatype: number, shape: number[], optional = false): TensorIo {
  return { name, datatype, shape, optional }
}

export function io(inputs: TensorIo[], outputs: TensorIo[]): ModelIo {
  return { inputs, outputs }
}

/** The failure of `act` in the form of the repository index; `ok` if it succeeds. */
export function reason(act: () => unknown): string {
  try {
    act()
    return 'ok'
  } catch (error) {
    return statusText(error)
  }
}

export const ADDSUB_CONFIG = `backend: "onnxruntime"
max_batch_size: 8
input [
  { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
  { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] }
]
output [
  { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
  { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] }
]
`

const VECTOR = [-1, 16]
export const ADDSUB = io(
  [tensor('INPUT0', 8, VECTOR), tensor('INPUT1', 8, VECTOR)],
  [tensor('OUTPUT0', 8, VECTOR), tensor('OUTPUT1', 8, VECTOR)],
)

/** Mulberry32: small, and the same on every machine. */
export function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}
