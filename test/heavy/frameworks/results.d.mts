export interface Failure {
  model: string
  error: string
}
/** Of a family or of a layout; one that is absent has a reason and no numbers. */
export interface Result {
  family?: string
  layout?: string
  absent?: string
  version?: string
  models?: number
  kinds?: number
  passed?: number
  failures?: Failure[]
  requests?: number
  at_once?: number
  runs?: number
  after?: string
  module?: string
  parts?: string[]
  date?: string
  commit?: string
}
export const RESULTS: string
export const KEPT_FROM: number
export const PAGES: [page: string, part: (results: Result[]) => string][]
export function readResults(): Result[]
export function merged(before: Result[], found: Result[]): Result[]
export function withPart(text: string, part: string): string
export function familyTable(results: Result[]): string
export function readmePart(results: Result[]): string
