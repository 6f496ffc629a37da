export function written(page: string): string
