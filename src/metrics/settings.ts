/** Settings of the metrics endpoint. */

import type { MetricsOptions } from '../native/contract.js'

export interface MetricsSettings {
  /** Serve them at a port; without it, only a program in whose process or by whose order the server runs reads them. */
  isServed: boolean
  address: string
  port: number
  /** Descriptor of an inherited socket; null = bind. */
  givenFd: number | null
  /** Collect CPU and memory of the host. */
  cpu: boolean
  /** Collect metrics of GPUs. */
  gpu: boolean
  /** Interval of samples of the host and of GPUs. */
  intervalMs: number
}

/** Settings of `--metrics-config`. */
export interface MetricsConfig extends MetricsOptions {
  counterLatencies: boolean
  /** Histograms of times and batches. */
  histograms: boolean
}
