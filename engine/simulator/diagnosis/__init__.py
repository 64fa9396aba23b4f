"""Why an answer starts late or streams slowly: measured times beside predicted ones."""
