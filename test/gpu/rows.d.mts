export interface Row {
  id: string
  shows: string
  needs: string[]
  target?: { unit: string; most?: number; least?: number }
}
export const ROWS: readonly Row[]
export function targetText(row: Pick<Row, 'target'>): string
export function passedRows(directory?: string): Set<string>
export function compatRows(passed?: Set<string>): string[]
export function listedRows(compat: string): string[]
