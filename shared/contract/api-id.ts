/** Pattern of an API's id, to build others from. */
export const API_ID_PATTERN = '[A-Za-z0-9_-]{1,64}';
/** An API's id, whole. */
export const API_ID = new RegExp(`^${API_ID_PATTERN}$`);
