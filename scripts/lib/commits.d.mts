/** The fault of a subject, or null. */
export function subjectFault(subject: string): string | null
