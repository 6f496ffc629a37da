export type Transport = 'http' | 'grpc'
export interface Verb {
  id: string
  title: string
  category: string | null
  act: 'read' | 'write'
  http: { method: string; path: string; body?: string; port?: string } | null
  grpc: string | null
  allowed: { http: string | null; grpc: string | null }
}
export function verbs(of: { key: string; file: string }): Verb[]

interface Facts {
  operation: string
  category?: string
  act?: 'read' | 'write'
  near?: string
  far?: string
}
export const routes: (Facts & { method: string; paths: string[] })[]
export const calls: (Facts & { path: string })[]
export function routeOf(http: { method: string; path: string }): Facts | undefined
export function callOf(name: string): Facts | undefined
