export interface Row {
  suite: string
  passed: number
  failed: number
  date: string
  commit: string
  seconds: number
  measured: string
}
export const RESULTS: string
export function parseResults(text: string): Row[]
export function withResult(text: string, row: Row): string
