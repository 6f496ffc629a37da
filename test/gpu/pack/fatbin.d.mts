export function architecture(name: string): number
export function cutFatbins(
  file: Buffer,
  architectures: readonly number[],
): { kept: Record<number, number>; cut: Record<number, number> }
