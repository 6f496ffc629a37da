export function pages(): Map<string, string>
