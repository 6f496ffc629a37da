import type { Transport, Verb } from './verbs.mjs'

export interface Column {
  where: 'network' | 'loopback' | 'Unix socket'
  brings: string
  expect: (verb: Verb, transport: Transport) => string | null
}
export interface Section {
  id: string
  title: string
  flags: string[]
  columns: Column[]
}
interface Files {
  cert: string
  key: string
}
export function sections(
  pki: Record<'root' | 'server' | 'client' | 'foreign', Files>,
  keys: Record<'file' | 'operator' | 'app' | 'ended', string> & { tokens: Record<string, string> },
  places: { control: number; sockets: string },
): Section[]
export function shownSections(): Section[]
