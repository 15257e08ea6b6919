// Changes that the node refuses because there is no room for them, and that somebody may want all the same.

/** The parameter that the text of such a refusal names. */
export const FORCE = 'allowUnderProvisioned';

/** Whether a change that was refused for that reason can be made all the same. */
export const canBeForced = (error) => error?.status === 400 && error.message.includes(`${FORCE}=true`);

/** The parameters of a change, of the fields of its form: the box is sent where it was ticked, and in no other case. */
export const forced = (fields = {}) => (fields[FORCE] ? { [FORCE]: 'true' } : {});
