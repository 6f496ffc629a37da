/** Source, address, and a name for the navigation. */
export const GROUPS: { title: string; pages: [string, string, string?][] }[]
/** Source and address. */
export const FOLDERS: [string, string][]
export const CRATES: string
