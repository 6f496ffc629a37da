/** Settings of the model repository and the small value types that its parts share. */

import type { ModelConfig } from '../config/index.js'

export type ControlMode = 'none' | 'poll' | 'explicit'

export interface RepositorySettings {
  paths: string[]
  /** `--model-namespacing`: several repositories may have models of the same name. */
  hasNamespaces: boolean
  mode: ControlMode
  /** Interval in mode poll; 0 = never. */
  pollSecs: number
  /** Models to load at start in mode explicit; `['*']` = all. */
  loadModels: string[]
  /** `--model-config-name`; null = none. */
  configName: string | null
  autoComplete: boolean
  /** Maximum number of versions that load concurrently, at least 1. */
  loadThreads: number
  loadRetries: number
  /** `--backend-config` in order; backend null = every backend. */
  backendConfig: { backend: string | null; key: string; value: string }[]
  minComputeCapability: number
  /** Treatment of GPU instance groups on a machine without a GPU. */
  gpuFallback: 'error' | 'cpu'
  /** Directory for downloads from clouds; null = the one in Triton's variables, else that for temporary files. */
  cacheDirectory: string | null
  /** Maximum bytes of that directory; 0 = limited by the file system. */
  cacheBytesMax: number
  /** Time in which a model's download must gain something; 0 = unlimited. */
  stallSecs: number
  /** Backends: `<name>/libtriton_<name>.so` or `<name>/model.py`. */
  backendDirectory: string
  /** `--host-per-model`: each model of a library runs in a process of its own. */
  hostPerModel: boolean
  /** `--host-user`, `<uid>:<gid>` of processes of libraries; null = the server's. */
  hostUser: string | null
  /** `--host-policy`: settings by the name of their policy. */
  hostPolicies: Record<string, Record<string, string>>
  /** Repository agents: `<name>/libtritonrepoagent_<name>.so`. */
  agentDirectory: string
}

/** Progress of one version, for the display at the start. */
export interface LoadEvent {
  model: string
  /** null when the load failed before its versions were known. */
  version: number | null
  phase: 'loading' | 'ready' | 'failed'
  /** Text of a failure, without its code; else empty. */
  detail: string
}

/** Facts about a serving version that the core does not keep. */
export interface ServedVersion {
  config: ModelConfig
  loadSeconds: number
}

/** The settings of one backend: global ones first, its own later, so that the last one wins. */
export function settingsOf(settings: RepositorySettings, backend: string): { key: string; value: string }[] {
  const merged = new Map<string, string>()
  for (const wanted of [null, backend]) {
    for (const pair of settings.backendConfig) if (pair.backend === wanted) merged.set(pair.key, pair.value)
  }
  return [...merged].map(([key, value]) => ({ key, value }))
}
