/** The pattern of an API's id, as a part of other patterns. */
export const API_ID_PATTERN = '[A-Za-z0-9_-]{1,64}';
/** Matches an API's id. */
export const API_ID = new RegExp(`^${API_ID_PATTERN}$`);
