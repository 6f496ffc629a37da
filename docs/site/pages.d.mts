/** Source, address, and a name for the navigation. */
export const GROUPS: { title: string; pages: [string, string, string?][] }[]
export const CONTRACT: string
