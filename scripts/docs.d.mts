export function buildDocs(out: string): Promise<void>
