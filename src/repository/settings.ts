/** Settings of the model repository and the small value types its parts share. */

import type { ModelConfig } from '../config/index.js'

export type ControlMode = 'none' | 'poll' | 'explicit'

export interface RepositorySettings {
  paths: string[]
  /** `--model-namespacing`: models of one name may be in several of them. */
  hasNamespaces: boolean
  mode: ControlMode
  /** Mode poll; 0 = never. */
  pollSecs: number
  /** Mode explicit; `['*']` = all. */
  loadModels: string[]
  /** null = none. */
  configName: string | null
  autoComplete: boolean
  /** Versions that load at the same time, at least 1. */
  loadThreads: number
  loadRetries: number
  /** `--backend-config` in order; backend null = every backend. */
  backendConfig: { backend: string | null; key: string; value: string }[]
  minComputeCapability: number
  /** What becomes of instance groups that want a GPU where there is none. */
  gpuFallback: 'error' | 'cpu'
  /** Where what is downloaded from clouds is kept; null = the directory that Triton's variables name, else that for temporary files. */
  cacheDirectory: string | null
  /** Most bytes of it; 0 = as much as the file system has. */
  cacheBytesMax: number
  /** Named in the error of a backend library that is not there; nothing is loaded from it. */
  backendDirectory: string
  /** Named in the error of a repository agent that is not there; nothing is loaded from it. */
  agentDirectory: string
}

/** Something about one version that a start-up display wants to know. */
export interface LoadEvent {
  model: string
  /** 0 and up; null when the model did not come as far as having versions. */
  version: number | null
  phase: 'loading' | 'ready' | 'failed'
  /** Status text of a failure, else empty. */
  detail: string
}

/** What is known of a version that serves, beyond the core's counters. */
export interface ServedVersion {
  config: ModelConfig
  loadSeconds: number
}

/** The pairs of one backend: global ones first, its own later, so that the last wins. */
export function settingsOf(settings: RepositorySettings, backend: string): { key: string; value: string }[] {
  const merged = new Map<string, string>()
  for (const wanted of [null, backend]) {
    for (const pair of settings.backendConfig) if (pair.backend === wanted) merged.set(pair.key, pair.value)
  }
  return [...merged].map(([key, value]) => ({ key, value }))
}
