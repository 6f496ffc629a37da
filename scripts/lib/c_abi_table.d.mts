/** A row of the table of exported functions. `types` is null for a row that a macro makes. */
export function rowsIn(directory: string): { probe: string; name: string; types: string[] | null; returns: string }[]
