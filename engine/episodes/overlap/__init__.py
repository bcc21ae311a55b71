"""Whether a second episode of a subject may be open: the options `overlap` of expectations."""
