/** Ports that are bound; 0 where nothing listens, or a Unix socket. */
export interface Ports {
  http: number
  grpc: number
  /** Of `--control-address`. */
  control: number
  metrics: number
}
