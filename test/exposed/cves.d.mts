export interface VulnerabilityClass {
  title: string
  cves: string[]
  here: string
  proofs: [file: string, words: string][]
}
export const CLASSES: VulnerabilityClass[]
export function published(): Map<string, { cwe: string; cause: string }>
