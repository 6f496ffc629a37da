export const WIDTH: number
export const LENGTH: number
export function textFolder(options?: {
  labels?: string[]
  pooling?: string
  normalizes?: boolean
}): Record<string, string | Buffer>
export function writeTextModel(
  root: string,
  name: string,
  folder: Record<string, string | Buffer>,
  config?: string,
): void
export function writeText(root: string): void
