export interface Found {
  notRun?: string
  bad: string[]
  tools: string[]
}
export function readAudit(text: string, packed: ReadonlySet<string>): Found
export function readDeny(text: string): Found
