export function reference(dist: string): string
