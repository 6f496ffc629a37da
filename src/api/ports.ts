/** Ports that are bound; 0 if nothing listens, and for a Unix socket. */
export interface Ports {
  http: number
  /** Port of `--openai-port`. */
  openai: number
  grpc: number
  /** Port of `--control-address`. */
  control: number
  metrics: number
}
