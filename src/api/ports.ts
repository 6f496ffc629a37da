/** Ports that are bound; 0 where nothing listens. */
export interface Ports {
  http: number
  grpc: number
  metrics: number
}
