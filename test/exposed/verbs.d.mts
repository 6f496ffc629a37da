export type Transport = 'http' | 'grpc'
export interface Verb {
  id: string
  title: string
  category: string | null
  act: 'read' | 'write'
  http: { route: string | null; method: string; path: string; body?: string; port?: string } | null
  grpc: string | null
  allowed: { http: string | null; grpc: string | null }
}
export function verbs(of: { key: string; file: string }): Verb[]
