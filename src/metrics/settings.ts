/** Settings of the metrics endpoint. */

export interface MetricsSettings {
  address: string
  port: number
  /** Descriptor of a socket that was given instead of an address to bind; null = bind. */
  givenFd: number | null
  /** CPU and memory of the host. */
  cpu: boolean
  /** What GPUs do. */
  gpu: boolean
  /** Between two samples of the host and of GPUs. */
  intervalMs: number
  /** Configured size of the pinned memory pool, reported as its total. */
  pinnedPoolBytes: number
}

/** What `--metrics-config` decides. */
export interface MetricsConfig {
  counterLatencies: boolean
  histogramLatencies: boolean
  summaryLatencies: boolean
  summaryQuantiles: { quantile: number; error: number }[]
}
