"""Groups whose members come and go, on schedules of any kind, judged by what their applications saw."""
